"""What the model is told besides the conversation: system prompt, context files, skills, templates.

Nothing here is read before it is needed, nothing of a project's own folders is touched unless the project is
trusted, and a file that cannot be used is a problem that is named, never the end of anything.
"""
