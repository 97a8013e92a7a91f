"""The command-line tool `hotpartition`: asks the operations function, of a stack on AWS or of the local run."""
