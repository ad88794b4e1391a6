"""The report on a fleet: what is verified, what has changed since, what holds back how much, what it costs. Imports no Dagster."""
