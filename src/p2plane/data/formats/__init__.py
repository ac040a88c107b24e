"""Point clouds in files, one module for each family of formats.

A module's ``read`` gives the `Content` of a file, or a ValueError that says what was expected and what came; its
``write`` puts a `Cloud` into an open binary file. `p2plane.data.io` names the file and chooses the module.
"""
