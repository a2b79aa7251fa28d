"""Papers whose figures and claims flowsim makes, each a plug-in of its own."""
