"""Alembic migrations of the ``tuner_`` tables; Optuna's tables have a history of their own.

``tuner db upgrade`` runs them. After a change of ``tuner/store/tables.py``, ``python -m migrations
"what changes"`` drafts the next one in ``versions/``: name its columns' types plainly there, since
a migration must not change with the code.
"""
