export default {
  // Loaded from node_modules as they are: the page of the dashboard is a folder in the package, and stores load their driver.
  serverExternalPackages: ['tidemill', 'pg'],
};
