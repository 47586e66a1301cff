"""`make bench`: Pigeon beside every other agent that is installed, on the same scripted model server.

`__main__` is the command. `peers` says how each agent is pointed at the server, `install` puts them into a folder.
`headless` runs a command once, `connections` speaks to programs that stay. `rows` and `growth` are what is measured,
`charts` and `page` what is made of it.
"""
