import { literal } from '../../reactive/names.js';
import { KEY, type KeyedTable } from './keyed-table.js';

export const SAFE = 'set search_path = pg_catalog, pg_temp';

/** Tells the claims that a key may have work, or may run again. Whoever wrote the row need not know of keys. */
const noteFunction = ({ wakes, name, due, runs, hasOrder, call }: KeyedTable): string => {
  const moved = (which: string): string => `${which}.limit_key${hasOrder ? `, ${which}.limit_order` : ''}`;
  const body = `
  begin
    if tg_op = 'INSERT' then
      insert into ${wakes} values (new.${name}, ${KEY('new.limit_key')}, new.${due}, true, false);
      return null;
    end if;
    if old.limit_key is not null and (tg_op = 'DELETE' or new.status <> 'pending'
        or (${moved('old')}) is distinct from (${moved('new')})) then
      insert into ${wakes} values (old.${name}, ${KEY('old.limit_key')}, '-infinity', false, true);
    end if;
    if tg_op = 'UPDATE' and new.status = 'pending' and new.limit_key is not null then
      insert into ${wakes} values (new.${name}, ${KEY('new.limit_key')},
        case when ${runs('old.')} then '-infinity' else new.${due} end, true, ${runs('old.')});
    end if;
    return null;
  end`;
  return `create function ${call('note_key')}() returns trigger language plpgsql security definer ${SAFE} as ${literal(body)}`;
};

/** The conditions are part of the triggers, so that rows without a key do not call the function. */
const noteTriggers = ({ rows, due, runs, hasOrder, call }: KeyedTable): readonly string[] => {
  const run = `execute function ${call('note_key')}()`;
  const columns = ['status', due, 'limit_key', ...(hasOrder ? ['limit_order'] : [])];
  const of = (which: string): string => columns.map((column) => `${which}.${column}`).join(', ');
  return [
    `create trigger note_key_insert after insert on ${rows} for each row
       when (new.limit_key is not null and new.status = 'pending') ${run}`,
    `create trigger note_key_update after update of ${columns.join(', ')} on ${rows} for each row
       when (coalesce(old.limit_key, new.limit_key) is not null and not (${runs('new.')})
         and (old.status = 'pending' or ${runs('old.')} or new.status = 'pending')
         and (${of('old')}) is distinct from (${of('new')})) ${run}`,
    `create trigger note_key_delete after delete on ${rows} for each row
       when (old.limit_key is not null and (old.status = 'pending' or ${runs('old.')})) ${run}`,
  ];
};

export const keyTriggers = (work: KeyedTable): readonly string[] => [
  noteFunction(work),
  ...noteTriggers(work),
];
