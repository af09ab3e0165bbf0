"""The model against published measurements: rows, predictions, errors.

`rows` reads records, `facts` turns a record into what the model takes, a module of each kind
predicts, `eras` fits the two constants of each era, `scores` adds up the errors.
"""
