"""The API's description (OpenAPI), generated from the code of the two HTTP functions."""
