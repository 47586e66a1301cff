"""The input of the model besides the conversation: system prompt, context files, skills, templates.

Nothing here is read before it is needed, nothing of a project's own folders is touched unless the project is
trusted, and a file that cannot be used is reported and never stops anything.
"""
