"""What the model is told besides the conversation: system prompt, context files, skills, templates."""
