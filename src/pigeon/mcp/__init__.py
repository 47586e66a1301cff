"""Tool servers: programs and services that offer tools by the Model Context Protocol."""
