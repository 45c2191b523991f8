import type { Names } from '../names.js';
import { literal, reactiveNames, type ReactiveNames } from '../../reactive/names.js';
import type { Migration } from './migration.js';

/**
 * Picks the parts of a JSON value that a tree of keys names, as a MongoDB projection does: goes through arrays, nested
 * ones included, and drops what is not an object. A key with no keys below it is taken whole. The function is
 * recursive, so it cannot be an expression; only values with arrays on the path get here.
 */
const pickedFunction = ({ picked }: ReactiveNames): string => {
  const body = `
  begin
    if jsonb_typeof(source) = 'object' then
      return (select coalesce(jsonb_object_agg(p.key, p.part), '{}') from (
        select t.key, case when t.value = '{}' then source -> t.key else ${picked}(source -> t.key, t.value) end as part
        from jsonb_each(wanted) t) p where p.part is not null);
    elsif jsonb_typeof(source) = 'array' then
      return (select coalesce(jsonb_agg(p.part order by p.at), '[]') from (
        select ${picked}(e.item, wanted) as part, e.at
        from jsonb_array_elements(source) with ordinality as e(item, at)) p where p.part is not null);
    end if;
    return null;
  end`;
  return `create function ${picked}(source jsonb, wanted jsonb) returns jsonb
    language plpgsql immutable strict parallel safe as ${literal(body)}`;
};

export const watching: Migration = {
  version: 5,
  name: 'watching',
  up: (names: Names) => {
    const own = reactiveNames(names);
    return [
      pickedFunction(own),
      // If a policy hides rows from this role, raise an error instead of making the rows look deleted.
      `alter function ${own.pinned}(text, text[]) set row_security = off`,
      // The fingerprint of a table when its last reconciliation was requested.
      `alter table ${own.sources} add column fingerprint text`,
      // The table that a task was planned for. Older versions leave it null and mean that of `origin`.
      `alter table ${own.tasks} add column source text collate "C",
         add column unplannable boolean not null default false`,
      `alter table ${own.states} add column origin text collate "C"`,
      `update ${own.states} s set origin = d.source from ${own.definitions} d
         where d.task = s.task and d.id = s.state ->> 'definition'`,
    ];
  },
};
