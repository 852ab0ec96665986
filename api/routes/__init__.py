"""Routes by resource. A route returns a model or raises; what takes more than fifteen lines is in its service.

A file imports its schemas, `api.auth` for who may call, and `api.dependencies` for its service and all else that it
asks for. Some import the form of their answer too.
"""
