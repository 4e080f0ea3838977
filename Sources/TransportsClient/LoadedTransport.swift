import CTransports
public import Foundation
public import TransportsCore

/// A client's transport of a library that was loaded at run time.
public final class LoadedTransport: CoreTransport, @unchecked Sendable {
    // Unchecked, as its base class: it has constants only.
    private let library: TransportLibrary

    /// Calls `pawl_client_transport_open` of the library.
    ///
    /// - Parameter configuration: What the library's documentation asks for; may be empty.
    /// - Throws: the library's error, or ``TesseractError/incompatible(reason:)``.
    public init(
        library: TransportLibrary, configuration: Data = Data(), limits: TransportLimits = TransportLimits()
    ) throws {
        self.library = library
        let open = try library.function("pawl_client_transport_open", as: pawl_client_transport_open_function.self)
        try super.init(TesseractError.self, limits: limits) { value, error in
            configuration.lend { open($0, value, error) }
        }
    }
}
