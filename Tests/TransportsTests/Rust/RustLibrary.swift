import CMyTransport
import CTransports
import Foundation
import TransportsClient
import TransportsCore
import TransportsService

/// The Rust transports of `Tests/Rust`, which `Tests/run` builds. Without Rust their tests do not run.
enum RustLibrary {
    /// The library for loading: named by the environment, or where `Tests/run` puts it.
    static let path: String? = {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        let usual = root.appending(path: ".build-rust/libpawl_unix_transport.so").path
        let path = ProcessInfo.processInfo.environment["PAWL_RUST_TRANSPORTS"] ?? usual
        return FileManager.default.fileExists(atPath: path) ? path : nil
    }()

    static var isThere: Bool { path != nil }

    /// Whether `Tests/run` has passed the static library to the linker.
    static var isLinked: Bool { my_transport_is_linked() }

    /// Whether both have to be there: `Tests/run` sets it.
    static var isRequired: Bool { ProcessInfo.processInfo.environment["PAWL_RUST_REQUIRED"] == "1" }

    static func load() throws -> TransportLibrary {
        guard let path else { throw TesseractError.unavailable(reason: "the Rust library is not built") }
        return try TransportLibrary(path: path, digests: [TransportLibrary.digest(path: path)])
    }

    /// Buffers (0) or futures (1) that are alive in the library.
    static func live(_ kind: UInt32) throws -> Int {
        let count: @convention(c) (UInt32) -> UInt = try load().function("pawl_test_live")
        return Int(count(kind))
    }
}

/// A client's transport of a library that is linked, as the document has it.
final class LinkedClientTransport: TransportsClient.CoreTransport, @unchecked Sendable {
    init(configuration: String, limits: TransportLimits) throws {
        try super.init(TesseractError.self, limits: limits) { value, error in
            configuration.lend { tesseract_client_my_transport_new($0, value, error) }
        }
    }
}

/// A service's transport of a library that is linked, as the document has it.
final class LinkedServiceTransport: TransportsService.CoreTransport, @unchecked Sendable {
    init(configuration: String, limits: TransportLimits) throws {
        try super.init(TesseractError.self, limits: limits) { value, error in
            configuration.lend { tesseract_service_my_transport_new($0, value, error) }
        }
    }
}
