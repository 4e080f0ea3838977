// The connection of all transports of this package. What differs between them is the line: how a request with an id gets
// to the service. Replies come back through the table of exchanges.

package import Foundation
import TransportCodec
package import TransportsCore

/// What carries the requests of one connection.
package protocol Line: AnyObject, Sendable {
    /// Connects if necessary. Called before every request.
    func open() async -> Result<Void, TesseractError>
    /// Sends a request. If it fails later, the line ends the table.
    func write(_ id: UInt64, _ request: Data) async -> Result<Void, TesseractError>
    /// Notifies the service that a reply is not needed any more.
    func cancel(_ id: UInt64)
    /// Ends the connection.
    func close()
}

/// A connection with any number of exchanges at once.
package final class ExchangeConnection: Connection {
    private let line: any Line
    private let table: ExchangeTable
    private let limits: TransportLimits

    package init(line: any Line, table: ExchangeTable, limits: TransportLimits) {
        (self.line, self.table, self.limits) = (line, table, limits)
    }

    deinit { line.close() }

    package var isConcurrent: Bool { true }

    package func send(request: Data) async -> Result<(), TesseractError> {
        switch await start(request, nil) {
        case .success: .success(())
        case .failure(let error): .failure(error)
        }
    }

    package func receive() async -> Result<Data, TesseractError> {
        let (waiter, wasCancelled) = (Once<Reply>(), Task.isCancelled)
        switch table.receive(waiter) {
        case .reply(let reply): return wasCancelled ? .failure(.cancelled) : reply
        case .waits(let id):
            let reply = await wait(waiter, id)
            return wasCancelled ? .failure(.cancelled) : reply
        case .nothingSent: return .failure(.weird(reason: "no request waits for a reply"))
        }
    }

    package func exchange(request: Data) async -> Result<Data, TesseractError> {
        let waiter = Once<Reply>()
        switch await start(request, waiter) {
        case .success(let id): return await wait(waiter, id)
        case .failure(let error): return .failure(error)
        }
    }

    private func start(_ request: Data, _ waiter: Once<Reply>?) async -> Result<UInt64, TesseractError> {
        guard !Task.isCancelled else { return .failure(.cancelled) }
        guard request.count <= limits.message else {
            return .failure(.tooLarge(reason: "a request has \(request.count) bytes; the limit is \(limits.message)"))
        }
        if case .failure(let error) = await line.open() { return .failure(error) }
        guard !Task.isCancelled else { return .failure(.cancelled) }
        switch table.open(for: waiter) {
        case .failure(let error): return .failure(error)
        case .success(let id):
            if case .failure(let error) = await line.write(id, request) {
                _ = table.cancel(id)
                return .failure(error)
            }
            return .success(id)
        }
    }

    private func wait(_ waiter: Once<Reply>, _ id: UInt64) async -> Reply {
        await waiter.value { [table, line] in
            if table.cancel(id) { line.cancel(id) }
            waiter.fulfil(.failure(.cancelled))
        }
    }
}
