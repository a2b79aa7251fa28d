"""The paper whose theory flowsim measures, Marion and Chizat (2024): a plug-in of which nothing else in flowsim knows.

Other papers are plug-ins outside the package, in `papers/` of the repository.
"""
