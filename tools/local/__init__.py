"""Runs the synthesized template on one machine: real handlers, real Redis, and DynamoDB behind a partition model."""
