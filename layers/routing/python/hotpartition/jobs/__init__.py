"""The jobs: write, read, consume reports, operate. They reach the world through `hotpartition.ports` only."""
