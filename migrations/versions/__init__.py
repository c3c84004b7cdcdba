"""The history, one module a revision."""
