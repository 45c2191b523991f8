/** What the code does with options, for comparison with the comments: the keys that it accepts, and its defaults. */
import ts from 'typescript';
import { walk, type Source } from './source.js';

interface CheckedCall {
  readonly path: string;
  /** The checked expression. */
  readonly text: string;
  /** The keys that the call accepts; undefined if they are not constants. */
  readonly keys: readonly string[] | undefined;
  readonly properties: readonly { readonly name: string; readonly declarations: readonly ts.Node[] }[];
}

/** Every call of `checkKeys`, with the keys that it accepts and those of the type of what it checks. */
export function checkedCalls(source: Source): readonly CheckedCall[] {
  const calls: CheckedCall[] = [];
  const visit = (node: ts.Node): void => {
    if (!ts.isCallExpression(node) || node.expression.getText() !== 'checkKeys') return;
    const [, options, keys] = node.arguments;
    if (options === undefined || keys === undefined) return;
    calls.push({
      path: source.pathOf(node),
      text: options.getText(),
      keys: textsIn(source, keys),
      properties: propertiesAt(source, options),
    });
  };
  for (const file of source.files) walk(file, visit);
  return calls;
}

function propertiesAt({ checker }: Source, node: ts.Expression): CheckedCall['properties'] {
  const type = checker.getNonNullableType(checker.getTypeAtLocation(node));
  return checker.getPropertiesOfType(type).map(({ name, declarations = [] }) => ({ name, declarations }));
}

/** The texts of a list that is written out, also in parts and under other names. */
function textsIn(source: Source, node: ts.Expression): readonly string[] | undefined {
  const list = resolved(source, node);
  if (list === undefined) return undefined;
  if (ts.isCallExpression(list) && list.expression.getText() === 'Object.keys')
    return keysOf(source, list.arguments[0]);
  if (!ts.isArrayLiteralExpression(list)) return undefined;
  const parts = list.elements.map((element) => {
    if (ts.isSpreadElement(element)) return textsIn(source, element.expression);
    return ts.isStringLiteral(element) ? [element.text] : undefined;
  });
  return parts.includes(undefined) ? undefined : parts.flatMap((part) => part ?? []);
}

function keysOf(source: Source, node: ts.Expression | undefined): readonly string[] | undefined {
  const object = node === undefined ? undefined : resolved(source, node);
  if (object === undefined || !ts.isObjectLiteralExpression(object)) return undefined;
  return object.properties.map((property) => property.name?.getText() ?? '');
}

/** The expression itself, or what the constant was set to that it names. */
function resolved(source: Source, node: ts.Expression): ts.Expression | undefined {
  if (ts.isAsExpression(node) || ts.isSatisfiesExpression(node)) return resolved(source, node.expression);
  if (!ts.isIdentifier(node)) return node;
  const { checker } = source;
  const symbol = checker.getSymbolAtLocation(node);
  const actual =
    symbol !== undefined && (symbol.flags & ts.SymbolFlags.Alias) !== 0
      ? checker.getAliasedSymbol(symbol)
      : symbol;
  const declared = actual?.valueDeclaration;
  if (declared === undefined || !ts.isVariableDeclaration(declared)) return undefined;
  const isConstant = (ts.getCombinedNodeFlags(declared) & ts.NodeFlags.Const) !== 0;
  return isConstant && declared.initializer !== undefined
    ? resolved(source, declared.initializer)
    : undefined;
}

type Literal = string | number | boolean;

/**
 * The defaults of options, by their declarations: `const { a = 1 } = options`, `options.a ?? 1` and
 * `(a: Options['a'] = 1)`. What is computed has no literal, and is left out.
 */
export function defaultsInCode(source: Source): ReadonlyMap<ts.Node, readonly Literal[]> {
  const found = new Map<ts.Node, Literal[]>();
  const add = (symbol: ts.Symbol | undefined, node: ts.Expression): void => {
    const value = literalOf(source, node);
    if (value === undefined) return;
    for (const declaration of symbol?.declarations ?? [])
      found.set(declaration, [...(found.get(declaration) ?? []), value]);
  };
  const visit = (node: ts.Node): void => {
    if (ts.isBindingElement(node) && node.initializer !== undefined && ts.isObjectBindingPattern(node.parent))
      add(boundProperty(source, node), node.initializer);
    else if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.QuestionQuestionToken)
      add(accessed(source, node.left), node.right);
    else if (ts.isParameter(node) && node.initializer !== undefined && node.type !== undefined)
      add(indexed(source, node.type), node.initializer);
  };
  for (const file of source.files) walk(file, visit);
  return found;
}

function boundProperty(
  { checker }: Source,
  { propertyName, name, parent }: ts.BindingElement,
): ts.Symbol | undefined {
  const type = checker.getNonNullableType(checker.getTypeAtLocation(parent));
  return checker.getPropertyOfType(type, (propertyName ?? name).getText());
}

const accessed = ({ checker }: Source, node: ts.Expression): ts.Symbol | undefined =>
  ts.isPropertyAccessExpression(node) ? checker.getSymbolAtLocation(node.name) : undefined;

function indexed({ checker }: Source, type: ts.TypeNode): ts.Symbol | undefined {
  if (!ts.isIndexedAccessTypeNode(type) || !ts.isLiteralTypeNode(type.indexType)) return undefined;
  const key = type.indexType.literal;
  if (!ts.isStringLiteral(key)) return undefined;
  return checker.getPropertyOfType(checker.getTypeFromTypeNode(type.objectType), key.text);
}

function literalOf(source: Source, node: ts.Expression): Literal | undefined {
  const value = resolved(source, node);
  if (value === undefined) return undefined;
  if (ts.isStringLiteral(value)) return value.text;
  if (ts.isNumericLiteral(value)) return Number(value.text);
  if (value.kind === ts.SyntaxKind.TrueKeyword) return true;
  return value.kind === ts.SyntaxKind.FalseKeyword ? false : undefined;
}

/** The value of a literal in a comment: `'30s'`, `5,000`, `true`. */
export function valueIn(text: string): Literal {
  if (text.startsWith("'")) return text.slice(1, -1);
  return text === 'true' || text === 'false' ? text === 'true' : Number(text.replaceAll(',', ''));
}
