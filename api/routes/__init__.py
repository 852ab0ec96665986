"""Routes by resource. A route returns a model or raises; what takes more than fifteen lines is in its service.

A file imports its schemas, its service and `api.dependencies`, and nothing else of `api`.
"""
