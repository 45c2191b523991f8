import type { VNode } from 'preact';
import { exactTime, relative } from '../format.js';
import { useNow } from '../now.js';

const MOMENT = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)/u;

/** A sentence from the server, with the times in it shown in the viewer's time zone. */
export function Prose({ text }: { readonly text: string }): VNode {
  return <>{text.split(MOMENT).map((part, i) => (i % 2 === 0 ? part : <Moment key={i} at={part} />))}</>;
}

function Moment({ at }: { readonly at: string }): VNode {
  const now = useNow();
  return (
    <time dateTime={at} title={at}>
      {exactTime(at)} ({relative(Date.parse(at), now)})
    </time>
  );
}
