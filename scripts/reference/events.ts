import ts from 'typescript';
import { commentOf, type Source } from './source.js';

export interface Event {
  readonly name: string;
  /** The fields that it carries beside `instanceId`, each with its type. */
  readonly fields: readonly string[];
  readonly text: string;
}

/** Reads the events that a mill emits. */
export function eventsOf(source: Source): readonly Event[] {
  const { checker } = source;
  return checker.getPropertiesOfType(source.typeAt('src/mill/events.ts#MillEvents')).map((symbol) => {
    const type = symbol.declarations?.find(ts.isPropertySignature)?.type;
    const members =
      type !== undefined && ts.isTypeLiteralNode(type) ? type.members.filter(ts.isPropertySignature) : [];
    const fields = members
      .filter(({ name }) => name.getText() !== 'instanceId')
      .map(
        (member) =>
          `${member.name.getText()}: ${(member.type?.getText() ?? '').replace(/\breadonly /gu, '')}`,
      );
    return { name: symbol.name, fields, text: commentOf(symbol, checker) };
  });
}
