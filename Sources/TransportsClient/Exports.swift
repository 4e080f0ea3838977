// A file that imports `TransportsClient` also needs the errors, limits and protocol names of both products.

@_exported import TransportsCore
