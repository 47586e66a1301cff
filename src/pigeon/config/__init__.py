"""The JSON files of the user's and the project's folders: settings, models, credentials, and their editing."""
