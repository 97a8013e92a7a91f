"""What the reports of demonstration and simulator share: pages from templates, pictures, one palette."""
