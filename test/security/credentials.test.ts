import { describe, expect, it } from 'vitest';
import { hider, safeUrl } from '../../src/cli/secrets.js';
import { hideCredentials } from '../../src/core/text/credentials.js';
import { show } from '../../src/core/options.js';
import { driverError } from '../../src/core/errors.js';
import { Tidemill } from '../../src/index.js';
import { embedded } from '../../src/embedded/index.js';
import { mongodb } from '../../src/mongodb/index.js';
import { postgres } from '../../src/postgres/index.js';
import { tidemill } from '../cli/terminal.js';

/** Each URL with what may be shown of it. */
const URLS: readonly (readonly [url: string, shown: string])[] = [
  ['postgres://ada:s3cret@host/app', 'postgres://host/app'],
  ['postgres://ada:s3cr%40et@host/app', 'postgres://host/app'],
  ['postgres://ada:s3@cr@et@host/app', 'postgres://host/app'],
  ['postgres://ada:s3/cr@et@host/app', 'postgres://host/app'],
  ['postgres://ada:s3?cret@host/app', 'postgres://host/app'],
  ['postgres://host/app?user=ada&password=s3@cret', 'postgres://host/app'],
  ['postgres://host/app?password=s3@cr%25et&user=ada', 'postgres://host/app'],
  ['postgresql:///app?host=/run&user=ada&password=s3:cret@x/y', 'postgresql:///app'],
  ['mongodb://ada:s3cret@h1:1,h2:2,h3/app?replicaSet=rs', 'mongodb://h1:1,h2:2,h3/app'],
  ['mongodb+srv://ada:s3cret@host/app?tlsCertificateKeyFilePassword=s3@cret', 'mongodb+srv://host/app'],
  ['postgres:/ada:s3cret@host/app', 'postgres:/host/app'],
  ...Array.from(
    '\'"`<> ',
    (sign) => [`postgres://ada:s3${sign}cret@host/app`, 'postgres://host/app'] as const,
  ),
  ['mongodb://ada:s3"cr@et@h1:1,h2:2/app', 'mongodb://h1:1,h2:2/app'],
  ['postgres://ada:s3/c ret@host/app', 'postgres://host/app'],
];

describe('credentials', () => {
  it.each(URLS)('hides the credentials of %s', (url, shown) => {
    expect(safeUrl(url)).toBe(shown);
    const message = `connection to ${url} failed: password authentication failed for user "ada"`;
    for (const text of [hideCredentials(message), hider([url])(message), show(url), hider([])(message)])
      expect(text).not.toMatch(/s3|cr%?|et@/u);
    expect(hider([url])(message)).not.toContain('ada');
    expect(hider([url])(message)).toContain('failed: password authentication failed');
  });

  it('hides credentials in keyword/value connection strings', () => {
    expect(hideCredentials("host=h user=x password='s3 c\\'ret' dbname=d")).toBe(
      'host=h user=x password=*** dbname=d',
    );
    expect(hideCredentials('host=h password=s3cret dbname=d')).toBe('host=h password=*** dbname=d');
    expect(hideCredentials('host=h password="s3 c\\"ret" dbname=d')).toBe('host=h password=*** dbname=d');
    expect(hideCredentials('password="no end')).toBe('password=***');
  });

  it('leaves texts without credentials unchanged', () => {
    for (const text of [
      'see https://example.com/a?mail=a@b.c',
      'file:./x@y',
      'C:/users/a@b',
      'Key (id)=(5) already exists',
      'postgres://h:5432/db?application_name=a@b',
      'connection to "postgres://[::1]:5432/app" failed: ask bob@example.com',
      'connection to mongodb://h1:1,h2:2/app failed: ask bob@example.com',
      'request to https://api.example.com failed for bob@example.com',
      'connection to postgres://localhost failed\nask bob@example.com',
    ])
      expect(hideCredentials(text)).toBe(text);
  });

  it('errors about misplaced options contain no credentials', () => {
    const url = 'postgres://user:s3cret@host/db';
    const wrong: (() => unknown)[] = [
      () => new Tidemill(url as never),
      () => new Tidemill({ store: { url } } as never),
      () => new Tidemill({ store: ` ${url}` }),
      () => new Tidemill({ store: 'memory:', instanceId: 5, logger: url } as never),
      () => postgres(url as never),
      () => postgres({ url: url.replace('postgres', 'mysql') }),
      () => postgres({ url, schema: 5 } as never),
      () => mongodb(url as never),
      () => mongodb({ uri: url }),
      () => embedded({ database: url } as never),
    ];
    for (const make of wrong) {
      let message = '';
      try {
        make();
      } catch (error) {
        message = (error as Error).message;
      }
      expect(message, String(make)).not.toBe('');
      expect(message, String(make)).not.toContain('s3cret');
    }
  });

  it('driver errors contain no credentials', () => {
    const error = driverError('find', new Error('getaddrinfo postgres://u:s3cret@h/d?password=s3cret'), {
      transient: true,
      outcomeUnknown: false,
    });
    expect(error.message).toBe('find: getaddrinfo postgres://***@h/d?password=***.');
  });

  it('the command line prints no credentials, wherever they are in the URL', async () => {
    for (const url of [
      'postgres://127.0.0.1:1/app?user=ada&password=p@s3cret',
      'mongodb://ada:s3@cret@127.0.0.1:1,127.0.0.1:2/app?serverSelectionTimeoutMS=200',
    ])
      for (const args of [
        ['doctor', '--store', url],
        ['doctor', '--json', '--store', url],
        ['ls', '--store', url],
        ['doctor', `--stroe=${url}`],
      ]) {
        const { out, err } = await tidemill(args);
        expect(out + err, args.join(' ')).not.toMatch(/s3|cret|"ada"/u);
      }
  });
});
