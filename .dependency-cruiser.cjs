/**
 * Who may import whom in src/. Dependencies point one way:
 *
 *   core <- time <- store <- engine, locks, maintenance, metrics, tracing <- jobs, documents, reactive <- front door <- clients
 *
 * The front door is the root of src/ and src/mill.
 *
 * A store (memory, mongodb, postgres, embedded) stands beside the engine, and alone imports its driver. The two SQL
 * stores share src/sql, which knows no driver. Layers on one level do not know each other. test/tooling/boundaries.test.ts trips every rule.
 */
const stores = ['memory', 'mongodb', 'postgres', 'embedded'];
/** Each is src/sql over a driver of its own. */
const sqlStores = ['postgres', 'embedded'];
const base = ['core', 'time', 'store'];
const triggers = ['jobs', 'documents', 'reactive'];

/** Folder of src/ -> the folders it may import, besides itself. */
const layers = {
  core: [],
  time: ['core'],
  store: ['core', 'time'],
  engine: base,
  locks: base,
  maintenance: base,
  metrics: base,
  tracing: ['core'],
  ...Object.fromEntries(triggers.map((trigger) => [trigger, [...base, 'engine', 'maintenance']])),
  sql: base,
  ...Object.fromEntries(stores.map((store) => [store, base])),
  ...Object.fromEntries(sqlStores.map((store) => [store, [...base, 'sql']])),
};

/** Clients come in by the front door. Testing also needs the memory store and a hand on the clock; the command
 * line serves the dashboard; what stands in for another library has public entries only. */
const clients = { dashboard: [], testing: [...base, 'memory'], cli: ['dashboard', 'compat'], compat: [] };

/** Optional peer -> the one folder that may import it. */
const drivers = {
  mongodb: 'mongodb',
  pg: 'postgres',
  '@electric-sql/pglite': 'embedded',
  'prom-client': 'metrics',
  '@opentelemetry/api': 'tracing',
};

const anyOf = (names) => `(${names.join('|')})`;
const frontDoor = '^src/(mill/.+|[^/]+)\\.ts$';
/** Client -> what it may import instead of the front door's own files. */
const publicEntries = {
  compat: ['^src/index\\.ts$', '^src/(mongodb|documents|dashboard)/index\\.ts$', '^src/time/cron\\.ts$'],
};

const onlyImports = ([folder, others], allowed = []) => ({
  name: `${folder}-imports`,
  comment: `src/${folder} may import only: ${[folder, ...others].join(', ')}${allowed.length > 0 ? ', the front door' : ''}`,
  severity: 'error',
  from: { path: `^src/${folder}/` },
  to: { path: '^src/', pathNot: [`^src/${anyOf([folder, ...others])}/`, ...allowed] },
});

module.exports = {
  forbidden: [
    ...Object.entries(layers).map((layer) => onlyImports(layer)),
    ...Object.entries(clients).map((client) => onlyImports(client, publicEntries[client[0]] ?? [frontDoor])),
    {
      name: 'compat-entries-stand-alone',
      comment: 'Whoever comes from one library does not load what stands in for another.',
      severity: 'error',
      from: { path: '^src/compat/([^/]+)/' },
      to: { path: '^src/compat/[^/]+/', pathNot: '^src/compat/$1/' },
    },
    {
      name: 'front-door-imports-no-client',
      severity: 'error',
      from: { path: frontDoor },
      to: { path: `^src/${anyOf(Object.keys(clients))}/` },
    },
    {
      name: 'front-door-loads-stores-lazily',
      comment:
        'Whoever uses one store must not need the driver of another, neither at run time nor for its types: use import().',
      severity: 'error',
      from: { path: frontDoor },
      to: { path: `^src/${anyOf([...stores, 'sql'])}/`, dynamic: false },
    },
    ...Object.entries(drivers).map(([driver, folder]) => ({
      name: `${driver}-driver-in-one-place`,
      comment: `Only src/${folder} imports ${driver}.`,
      severity: 'error',
      from: { path: '^src/', pathNot: `^src/(${folder}|compat)/` },
      to: { path: `(^|/node_modules/|^node_modules/)${driver}(/|$)`, pathNot: '^src/' },
    })),
    {
      name: 'compat-imports-types-of-drivers',
      comment: 'The signatures of other libraries name them; the database is reached through a store.',
      severity: 'error',
      // The entry of mongodash makes a client for its users, as mongodash does.
      from: { path: '^src/compat/', pathNot: ['/object-id\\.ts$', '^src/compat/mongodash/'] },
      to: {
        path: `(^|/node_modules/|^node_modules/)${anyOf(Object.keys(drivers))}(/|$)`,
        pathNot: '^src/',
        dependencyTypesNot: ['type-only'],
      },
    },
    {
      name: 'one-async-storage',
      comment: 'Each costs every promise of the process time, for good: use core/call-context.ts.',
      severity: 'error',
      // A compat entry has one for all that it makes.
      from: { path: '^src/', pathNot: ['^src/core/(call-context|clock)\\.ts$', '^src/compat/'] },
      to: { path: '^(node:)?async_hooks$' },
    },
    {
      name: 'known-folders',
      comment: 'A new folder in src/ gets its place in the table of layers first.',
      severity: 'error',
      from: {
        path: '^src/[^/]+/',
        pathNot: `^src/${anyOf(['mill', ...Object.keys(layers), ...Object.keys(clients)])}/`,
      },
      to: {},
    },
    {
      name: 'shipped-code-stays-in-src',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^(test|servers|bench|examples|scripts)/' },
    },
    {
      name: 'no-import-by-own-name',
      comment: 'It would load a second copy, from dist once that is built.',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: ['^tidemill(/|$)', '^dist/'] },
    },
    {
      name: 'conformance-suite-stands-alone',
      comment: 'It is large, and only authors of stores load it.',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/testing/conformance/' },
      to: { path: '^src/testing/conformance/' },
    },
    {
      name: 'no-cycles',
      comment: 'Imports of types count: two files that need each other are one thought.',
      severity: 'error',
      from: { path: '^src/' },
      to: { circular: true },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    // Sees imports of types, which the compiler would drop.
    tsPreCompilationDeps: true,
  },
};
