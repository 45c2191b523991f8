import { literal } from '../../reactive/names.js';
import type { Names } from '../names.js';

/** A SQL expression: the key of a job as it is indexed. An index entry has no room for every text. */
export const KEY = (text: string): string =>
  `case when octet_length(${text}) > 500 then 'md5:' || md5(${text}) else ${text} end`;

/**
 * A SQL expression: the name and the key of a job in one text, of which nothing else is indexed. So no statement about a
 * key can be planned by an index of names, in which it would read what waits under other keys. `prefix` and the range
 * from it to `prefix;` hold one name, since no other text begins with its length and itself.
 */
export const KEY_OF_NAME = (name: string, key: string): string =>
  `octet_length(${name})::text || ':' || ${name} || ':' || ${key}`;
/** The same for a job. */
export const JOB_KEY: string = KEY_OF_NAME('name', `(${KEY('limit_key')})`);

export const SAFE = 'set search_path = pg_catalog, pg_temp';

/** Tells the claims that a key may have work, or may run again. Whoever wrote the job need not know of keys. */
const noteFunction = ({ table }: Names): string => {
  const wakes = table('key_wakes');
  const body = `
  begin
    if tg_op = 'INSERT' then
      insert into ${wakes} values (new.name, ${KEY('new.limit_key')}, new.next_run_at, true, false);
      return null;
    end if;
    if old.limit_key is not null and (tg_op = 'DELETE' or new.status <> 'pending'
        or (old.limit_key, old.limit_order) is distinct from (new.limit_key, new.limit_order)) then
      insert into ${wakes} values (old.name, ${KEY('old.limit_key')}, '-infinity', false, true);
    end if;
    if tg_op = 'UPDATE' and new.status = 'pending' and new.limit_key is not null then
      insert into ${wakes} values (new.name, ${KEY('new.limit_key')},
        case when old.status = 'processing' then '-infinity' else new.next_run_at end, true, old.status = 'processing');
    end if;
    return null;
  end`;
  return `create function ${table('note_key')}() returns trigger language plpgsql security definer ${SAFE} as ${literal(body)}`;
};

/** The conditions are part of the triggers, so that jobs without a key do not call the function. */
const noteTriggers = ({ jobs, table }: Names): readonly string[] => {
  const call = `execute function ${table('note_key')}()`;
  return [
    `create trigger note_key_insert after insert on ${jobs} for each row
       when (new.limit_key is not null and new.status = 'pending') ${call}`,
    `create trigger note_key_update after update of status, next_run_at, limit_key, limit_order on ${jobs} for each row
       when (coalesce(old.limit_key, new.limit_key) is not null and new.status <> 'processing'
         and (old.status in ('pending', 'processing') or new.status = 'pending')
         and (old.status, old.next_run_at, old.limit_key, old.limit_order)
           is distinct from (new.status, new.next_run_at, new.limit_key, new.limit_order)) ${call}`,
    `create trigger note_key_delete after delete on ${jobs} for each row
       when (old.limit_key is not null and old.status in ('pending', 'processing')) ${call}`,
  ];
};

export const keyTriggers = (names: Names): readonly string[] => [noteFunction(names), ...noteTriggers(names)];
