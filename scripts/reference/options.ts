import ts from 'typescript';
import { commentOf, type Source } from './source.js';

/** One option of a call, as its doc comment describes it. */
export interface Option {
  /** With the names of the objects around it: `pollInterval.min`. */
  readonly name: string;
  readonly type: string;
  readonly isRequired: boolean;
  /** The text after `Default:`; empty if the comment has none. */
  readonly defaultText: string;
  readonly text: string;
  /** For an option of one variant of a union only: what tells the variant apart, such as `type: 'fixed'`. */
  readonly variant?: string;
  /** It is an object whose keys are options of their own. */
  readonly hasKeys: boolean;
  readonly declaration: ts.PropertySignature;
}

interface Property {
  readonly symbol: ts.Symbol;
  readonly declaration: ts.PropertySignature;
}

/** Reads the options of a type. `own` leaves out what the type inherits. */
export function optionsOf(source: Source, place: string, own = false): readonly Option[] {
  const type = source.typeAt(place);
  if (type.isUnion()) return variantsOf(source, type);
  const declared = new Set<ts.Node>(type.getSymbol()?.declarations);
  return propertiesOf(source, type)
    .filter(({ declaration }) => !own || declared.has(declaration.parent))
    .flatMap((property) => readOption(source, property, ''));
}

/** Options that all variants share come once; those of one variant say which. The key that tells them apart is left out. */
function variantsOf(source: Source, union: ts.UnionType): readonly Option[] {
  const found = new Map<ts.PropertySignature, Property & { readonly variants: (string | undefined)[] }>();
  for (const type of union.types) {
    for (const property of propertiesOf(source, type)) {
      if (property.symbol.name === TAG) continue;
      const known = found.get(property.declaration) ?? { ...property, variants: [] };
      known.variants.push(tagOf(source, type));
      found.set(property.declaration, known);
    }
  }
  return [...found.values()].flatMap(({ variants, ...property }) => {
    const [only] = variants.length === 1 ? variants : [];
    const options = readOption(source, property, '');
    return only === undefined ? options : options.map((option) => ({ ...option, variant: only }));
  });
}

const TAG = 'type';

function tagOf({ checker }: Source, type: ts.Type): string | undefined {
  const symbol = type.getProperty(TAG);
  const literal = symbol === undefined ? undefined : checker.getTypeOfSymbol(symbol);
  return literal?.isStringLiteral() === true ? `${TAG}: '${literal.value}'` : undefined;
}

function propertiesOf({ checker }: Source, type: ts.Type): readonly Property[] {
  return checker.getPropertiesOfType(type).flatMap((symbol) => {
    const declaration = symbol.declarations?.find(ts.isPropertySignature);
    return declaration === undefined ? [] : [{ symbol, declaration }];
  });
}

function readOption(source: Source, { symbol, declaration }: Property, prefix: string): readonly Option[] {
  const name = `${prefix}${symbol.name}`;
  const nested = membersOf(declaration.type).flatMap((member) => {
    const inner = source.checker.getSymbolAtLocation(member.name);
    return inner === undefined ? [] : readOption(source, { symbol: inner, declaration: member }, `${name}.`);
  });
  const option: Option = {
    name,
    type: typeText(source, declaration),
    isRequired: declaration.questionToken === undefined,
    ...splitComment(commentOf(symbol, source.checker)),
    hasKeys: nested.length > 0,
    declaration,
  };
  return [option, ...nested];
}

const membersOf = (type: ts.TypeNode | undefined): readonly ts.PropertySignature[] =>
  literalsIn(type).flatMap(({ members }) => members.filter(ts.isPropertySignature));

/** The objects that are written where they are used. */
function literalsIn(type: ts.TypeNode | undefined): readonly ts.TypeLiteralNode[] {
  if (type === undefined) return [];
  if (ts.isTypeLiteralNode(type)) return [type];
  return ts.isUnionTypeNode(type) ? type.types.flatMap(literalsIn) : [];
}

/** Separates the sentence that begins with `Default:` from the others. */
export function splitComment(comment: string): { readonly text: string; readonly defaultText: string } {
  const match = /^(?<before>.*?)\s*\bDefault: (?<value>.*?)\.(?:\s+(?=[A-Z`'])(?<after>.*))?$/u.exec(comment);
  if (match?.groups === undefined) return { text: comment, defaultText: '' };
  const { before = '', value = '', after = '' } = match.groups;
  return { text: [before, after].filter((part) => part !== '').join(' '), defaultText: value };
}

/** The type as it is written; names of texts to choose from are written out, and objects shortened to their keys. */
function typeText({ checker }: Source, { type }: ts.PropertySignature): string {
  if (type === undefined) return '';
  const choices = ts.isTypeReferenceNode(type) ? choicesOf(checker, type) : undefined;
  if (choices !== undefined) return choices;
  const short = literalsIn(type).reduce(
    (text, literal) => text.replace(literal.getText(), `{ ${membersOf(literal).map(keyText).join(', ')} }`),
    type.getText(),
  );
  return short
    .replace(/\s+/gu, ' ')
    .replace(/\breadonly /gu, '')
    .replace(/\bTx\b/gu, 'Transaction')
    .replace(/^S \|/u, 'Store |')
    .replace(/^\| /u, '');
}

const keyText = ({ name, questionToken }: ts.PropertySignature): string =>
  `${name.getText()}${questionToken === undefined ? '' : '?'}`;

function choicesOf(checker: ts.TypeChecker, node: ts.TypeReferenceNode): string | undefined {
  const type = checker.getNonNullableType(checker.getTypeFromTypeNode(node));
  const choices = type.isUnion() ? type.types : [];
  const texts = choices.flatMap((choice) => (choice.isStringLiteral() ? [`'${choice.value}'`] : []));
  return texts.length > 0 && texts.length === choices.length ? texts.join(' | ') : undefined;
}
