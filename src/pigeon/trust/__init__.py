"""Whether the files of a project are used: the decision, where it is stored, and how a session asks for it."""
