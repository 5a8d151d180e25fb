-- Run once, by the image of PostgreSQL, when its data folder is empty; Prefect's database is made by POSTGRES_DB.
CREATE DATABASE mlflow;
