"""What hotpartition costs, row by row, beside what one would use instead."""
