"""The jobs beside requests: consumer, operations, reconciliation. They use the engine."""
