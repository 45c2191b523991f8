-- The least rights of Tidemill on PostgreSQL. Run it with psql, as the owner of the database and of the tables:
--   psql app -v role=tidemill -v schema=tidemill -v tables=public -v watched=orders -v scheduled=reminders -f postgres.sql

-- 1. The role, and a schema of its own. Tidemill makes and migrates its tables there. Give the role a password, too.
create role :"role" login;
create schema :"schema" authorization :"role";

-- 2. For each table with reactive tasks: read its rows, and make the triggers that note changes.
grant usage on schema :"tables" to :"role";
grant select, trigger on table :"tables".:"watched" to :"role";

-- 3. For each table with document schedules: read rows and write their schedule. `delete` is for autoRemove only.
grant usage on schema :"tables" to :"role";
grant select, update, delete on table :"tables".:"scheduled" to :"role";
