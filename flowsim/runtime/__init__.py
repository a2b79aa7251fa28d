"""What programs run on: compiled functions, memory, threads, signals and errors, and how a run is known again."""
