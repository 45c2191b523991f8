// The least rights of Tidemill on MongoDB. Run it with mongosh, as an administrator of users:
//   mongosh "mongodb://admin@host/admin" --eval 'var database = "app", watched = ["orders"], scheduled = ["reminders"]' -f mongodb.js

/* global db, database, watched, scheduled */
const owned = [
  'tidemill_jobs',
  'tidemill_jobs_wakes',
  'tidemill_metrics',
  'tidemill_audit',
  '_tidemill_globals',
];
const tasks = watched.map((name) => `${name}_tasks`);
const on = (collection, actions) => ({ resource: { db: database, collection }, actions });

db.getSiblingDB('admin').createRole({
  role: 'tidemill',
  privileges: [
    // Its own collections, and one beside each collection with reactive tasks.
    ...[...owned, ...tasks].map((name) =>
      on(name, ['find', 'insert', 'update', 'remove', 'createCollection', 'createIndex', 'listIndexes']),
    ),
    // Reactive tasks follow the changes of the whole database; so do wake-ups beside an earlier version.
    on('', ['find', 'changeStream', 'listCollections']),
    // Schedules are written into your documents; `remove` is for autoRemove only.
    ...scheduled.map((name) => on(name, ['update', 'remove', 'listIndexes'])),
    // How far back the history of changes reaches.
    { resource: { db: 'local', collection: 'oplog.rs' }, actions: ['find', 'collStats'] },
  ],
  roles: [],
});
