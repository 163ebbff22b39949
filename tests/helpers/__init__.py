"""What several test files share: reference cases, simulated data, ways to run the command line."""
