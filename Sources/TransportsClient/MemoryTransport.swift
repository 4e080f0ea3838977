import Foundation
import Synchronization
public import TransportsCore

/// Reaches a service in the same process.
public final class MemoryTransport: Transport {
    /// The name.
    public let id: String
    private let link: MemoryLink
    private let limits: TransportLimits

    /// - Parameters:
    ///   - link: What the service's transport is made with.
    ///   - id: The name of this transport.
    public init(_ link: MemoryLink, id: String = "memory", limits: TransportLimits = TransportLimits()) {
        (self.link, self.id, self.limits) = (link, id, limits)
    }

    /// Ready if a service is bound that has the protocol.
    public func status(proto: ProtocolID) async -> Status { Status(Self.check(link, proto)) }

    /// A connection to the service that is bound when a request is sent.
    public func connect(proto: ProtocolID) -> any Connection {
        let table = ExchangeTable(limits: limits)
        return ExchangeConnection(
            line: MemoryLine(link: link, proto: proto, table: table, limits: limits), table: table, limits: limits)
    }

    fileprivate static func check(_ link: MemoryLink, _ proto: ProtocolID) -> Result<Void, TesseractError> {
        switch link.supports(proto) {
        case true?: .success(())
        case false?: .failure(.unavailable(reason: "the service does not have the protocol \(proto)"))
        case nil: .failure(.unavailable(reason: "no service is running"))
        }
    }

    private final class MemoryLine: Line {
        private let link: MemoryLink
        private let proto: ProtocolID
        private let table: ExchangeTable
        private let limits: TransportLimits
        private let running = Mutex<[UInt64: Task<Void, Never>]>([:])

        init(link: MemoryLink, proto: ProtocolID, table: ExchangeTable, limits: TransportLimits) {
            (self.link, self.proto, self.table, self.limits) = (link, proto, table, limits)
        }

        func open() async -> Result<Void, TesseractError> { MemoryTransport.check(link, proto) }

        func write(_ id: UInt64, _ request: Data) async -> Result<Void, TesseractError> {
            let (table, limits) = (table, limits)
            let isStarted = running.withLock { running in
                let task = link.start(request) { [weak self] reply in
                    _ = table.arrived(id, reply.bounded(limits))
                    self?.running.withLock { $0[id] = nil }
                }
                running[id] = task
                return task != nil
            }
            return isStarted ? .success(()) : .failure(.closed(reason: "the service is closed"))
        }

        func cancel(_ id: UInt64) { running.withLock { $0.removeValue(forKey: id) }?.cancel() }

        func close() {
            let tasks = running.withLock { running in
                defer { running = [:] }
                return Array(running.values)
            }
            for task in tasks { task.cancel() }
            table.end(.closed(reason: "the connection is closed"))
        }
    }
}
