import { dirname, join, relative, resolve } from 'node:path';
import ts from 'typescript';

export const root = resolve(import.meta.dirname, '../..');

/** The sources of the package as the compiler reads them. */
export class Source {
  readonly checker: ts.TypeChecker;
  readonly files: readonly ts.SourceFile[];
  readonly #program: ts.Program;

  constructor() {
    const path = join(root, 'tsconfig.build.json');
    const { config } = ts.readConfigFile(path, (file) => ts.sys.readFile(file)) as { config: object };
    const { fileNames, options } = ts.parseJsonConfigFileContent(config, ts.sys, dirname(path));
    this.#program = ts.createProgram(fileNames, options);
    this.checker = this.#program.getTypeChecker();
    const src = join(root, 'src/');
    this.files = this.#program.getSourceFiles().filter(({ fileName }) => fileName.startsWith(src));
  }

  /** The path of a node's file, from the root of the repository. */
  pathOf(node: ts.Node): string {
    return relative(root, node.getSourceFile().fileName);
  }

  /**
   * The type at a place: `src/mill/options.ts#TidemillOptions`, `src/jobs/definition.ts#defineJob(options)` or
   * `src/jobs/manage/manager.ts#Jobs.cancel(options)`.
   */
  typeAt(place: string): ts.Type {
    const [path = '', rest = ''] = place.split('#');
    const { names, parameter } = /^(?<names>[\w.]+)(?:\((?<parameter>\w+)\))?$/u.exec(rest)?.groups ?? {};
    const [name = '', member] = (names ?? '').split('.');
    const file = this.#program.getSourceFile(join(root, path));
    const module = file === undefined ? undefined : this.checker.getSymbolAtLocation(file);
    const found = module?.exports?.get(ts.escapeLeadingUnderscores(name));
    const symbol = member === undefined ? found : found?.members?.get(ts.escapeLeadingUnderscores(member));
    if (symbol === undefined) throw new Error(`There is no ${place}.`);
    return parameter === undefined
      ? this.checker.getDeclaredTypeOfSymbol(symbol)
      : this.#parameter(symbol, parameter, place);
  }

  /** Of overloads, the implementation has the parameter that takes them all. */
  #parameter(symbol: ts.Symbol, parameter: string, place: string): ts.Type {
    const declared = symbol.declarations?.at(-1);
    const parameters = declared !== undefined && ts.isFunctionLike(declared) ? declared.parameters : [];
    const found = parameters.find(({ name }) => name.getText() === parameter);
    if (found === undefined) throw new Error(`There is no ${place}.`);
    return this.checker.getNonNullableType(this.checker.getTypeAtLocation(found));
  }
}

/** Calls `visit` with every node below this one. */
export function walk(node: ts.Node, visit: (node: ts.Node) => void): void {
  ts.forEachChild(node, (child) => {
    visit(child);
    walk(child, visit);
  });
}

/** The text of a doc comment on one line; empty if there is none. */
export function commentOf(symbol: ts.Symbol, checker: ts.TypeChecker): string {
  return ts.displayPartsToString(symbol.getDocumentationComment(checker)).replace(/\s+/gu, ' ').trim();
}
