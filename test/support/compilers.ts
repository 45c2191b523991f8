/** Versions of TypeScript: ours, and those that users have beside it, which `fetchPackages('test/tools')` installs. */
export const compilers = {
  'TypeScript 5.9': 'test/tools/node_modules/typescript-5.9',
  'TypeScript 6': 'node_modules/typescript',
  'TypeScript 7': 'test/tools/node_modules/typescript-7',
};
