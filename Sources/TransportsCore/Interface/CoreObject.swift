// Objects of the C interface as Swift objects: one reference each, given back by deinit, so a copy cannot be used twice
// and none is forgotten.

public import CTransports

/// A type that has a counterpart in the C interface.
public protocol CoreConvertible<Core> {
    /// The counterpart.
    associatedtype Core
    /// The counterpart of this object. It keeps the object alive.
    func toCore() -> Core
}

/// An object of the C interface: its state and its table of functions.
public protocol CoreHandle {
    /// The state that every function of the table gets.
    var object: UnsafeMutableRawPointer! { get }
    /// The head of the table; nil if there is no table.
    var head: UnsafePointer<pawl_table>? { get }
    /// Bytes of the table's functions that this version calls.
    static var tableSize: Int { get }
    /// Whether no function is missing. Asked only if the table is as long as ``tableSize``.
    var isComplete: Bool { get }
}

/// Owns one reference to an object of the C interface.
public final class CoreObject<Handle: CoreHandle>: @unchecked Sendable {
    // Unchecked: the handle never changes, and the interface allows calls on every thread.
    package let handle: Handle

    /// Takes over the caller's reference.
    ///
    /// - Throws: ``TesseractError/incompatible(reason:)`` if the table is of another version or is not complete. The
    ///   reference is given back if the table's head allows it.
    public init(taking handle: Handle) throws(TesseractError) {
        guard let head = handle.head else {
            throw .incompatible(reason: "the object has no table of functions")
        }
        guard head.pointee.abi == UInt32(PAWL_TRANSPORTS_ABI) else {
            throw .incompatible(reason: "the interface has version \(head.pointee.abi) and not \(PAWL_TRANSPORTS_ABI)")
        }
        guard head.pointee.size >= Handle.tableSize, head.pointee.retain != nil, let release = head.pointee.release
        else {
            throw .incompatible(reason: "the table has \(head.pointee.size) bytes and not \(Handle.tableSize)")
        }
        guard handle.isComplete else {
            release(handle.object)
            throw .incompatible(reason: "a function is missing in the table")
        }
        self.handle = handle
    }

    /// Takes over a reference to an object of this package.
    package init(trusting handle: Handle) { self.handle = handle }

    deinit { handle.head?.pointee.release?(handle.object) }

    /// A handle with a reference of its own, for code in another language, which has to release it.
    public func retained() -> Handle {
        handle.head?.pointee.retain?(handle.object)
        return handle
    }
}

/// A client's transport in the C interface.
public typealias ClientTransport = CoreObject<pawl_client_transport>
/// A client's connection in the C interface.
public typealias ClientConnection = CoreObject<pawl_client_connection>
/// A service's transport in the C interface.
public typealias ServiceTransport = CoreObject<pawl_service_transport>
/// A service's bound transport in the C interface.
public typealias ServiceBoundTransport = CoreObject<pawl_service_bound>

extension UnsafePointer {
    fileprivate var head: UnsafePointer<pawl_table> {
        UnsafeRawPointer(self).assumingMemoryBound(to: pawl_table.self)
    }
}

extension pawl_client_transport: CoreHandle {
    /// The head of the table.
    public var head: UnsafePointer<pawl_table>? { table?.head }
    /// Bytes of the table.
    public static var tableSize: Int { MemoryLayout<pawl_client_transport_table>.size }
    /// Whether no function is missing.
    public var isComplete: Bool {
        table.pointee.id != nil && table.pointee.status != nil && table.pointee.connect != nil
    }
}

extension pawl_client_connection: CoreHandle {
    /// The head of the table.
    public var head: UnsafePointer<pawl_table>? { table?.head }
    /// Bytes of the table.
    public static var tableSize: Int { MemoryLayout<pawl_client_connection_table>.size }
    /// Whether no function is missing.
    public var isComplete: Bool { table.pointee.send != nil && table.pointee.receive != nil }
}

extension pawl_service_transport: CoreHandle {
    /// The head of the table.
    public var head: UnsafePointer<pawl_table>? { table?.head }
    /// Bytes of the table.
    public static var tableSize: Int { MemoryLayout<pawl_service_transport_table>.size }
    /// Whether no function is missing.
    public var isComplete: Bool { table.pointee.bind != nil }
}

extension pawl_service_bound: CoreHandle {
    /// The head of the table.
    public var head: UnsafePointer<pawl_table>? { table?.head }
    /// Bytes of the table.
    public static var tableSize: Int { MemoryLayout<pawl_service_bound_table>.size }
    /// Whether no function is missing.
    public var isComplete: Bool { table.pointee.ready != nil && table.pointee.close != nil }
}

extension pawl_processor: CoreHandle {
    /// The head of the table.
    public var head: UnsafePointer<pawl_table>? { table?.head }
    /// Bytes of the table.
    public static var tableSize: Int { MemoryLayout<pawl_processor_table>.size }
    /// Whether no function is missing.
    public var isComplete: Bool { table.pointee.supports != nil && table.pointee.process != nil }
}
