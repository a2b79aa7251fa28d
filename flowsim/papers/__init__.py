"""Papers whose figures and claims flowsim makes: each folder is a plug-in of which nothing outside knows.

Its README.md cites the paper and says which scenario reproduces what. A scenario names the kinds of figure, data,
network or probe of a paper by their place, as in `figure: flowsim.papers.marion_chizat_2024:Figure1`.
"""
