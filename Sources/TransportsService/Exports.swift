// A file that imports `TransportsService` also needs the errors, limits and protocol names of both products.

@_exported import TransportsCore
