import Foundation
import NIOSSL
import PeerKit
import Testing
import TransportsClient
import TransportsCore
import TransportsService

/// The transports of the conformance suite.
enum Kind: String, CaseIterable, CustomTestStringConvertible {
    case memory, unix, tls, webSocket, webSocketTLS
    /// In memory, with both sides wrapped in the C interface.
    case interface
    /// Both sides in Rust, loaded at run time; in Rust, linked.
    case rustLoaded, rustLinked
    /// One side in Rust, the other in Swift.
    case rustClient, rustService

    var testDescription: String { rawValue }

    /// Those that can run here.
    static var available: [Kind] {
        allCases.filter { kind in
            switch kind {
            case .memory, .unix, .tls, .webSocket, .webSocketTLS, .interface: true
            case .rustLoaded, .rustClient, .rustService: RustLibrary.isThere
            case .rustLinked: RustLibrary.isLinked
            }
        }
    }
}

/// A bound service and a transport that reaches it.
struct Rig: Sendable {
    let client: any TransportsClient.Transport
    let bound: any BoundTransport
    /// Binds another processor at the same place.
    let rebind: @Sendable (TransportProcessor) async throws -> any BoundTransport
    private let scratch: ScratchDirectory

    static func start(
        _ kind: Kind, _ processor: TransportProcessor, limits: TransportLimits = .patient
    ) async throws -> Rig {
        let scratch = try ScratchDirectory()
        switch kind {
        case .memory:
            let link = MemoryLink()
            return try await Rig(
                TransportsClient.MemoryTransport(link, limits: limits),
                TransportsService.MemoryTransport(link, limits: limits), processor, scratch)
        case .interface:
            let link = MemoryLink()
            return try await Rig(
                TransportsClient.CoreTransport(
                    TransportsClient.MemoryTransport(link, limits: limits).toCore(), limits: limits),
                TransportsService.CoreTransport(
                    TransportsService.MemoryTransport(link, limits: limits).toCore(), limits: limits),
                processor, scratch)
        case .unix:
            let path = scratch.file("service.sock")
            return try await Rig(
                TransportsClient.UnixTransport(path: path, limits: limits),
                TransportsService.UnixTransport(path: path, limits: limits), processor, scratch)
        case .rustLoaded, .rustLinked, .rustClient, .rustService:
            return try await rust(kind, scratch.file("service.sock"), processor, limits, scratch)
        case .tls:
            let tls = try TLSFiles(scratch)
            let service = try TransportsService.TCPTransport(
                host: "127.0.0.1", port: 0, tls: tls.service, limits: limits)
            let bound = try await bind(service, processor)
            let port = await TransportsService.TCPTransport.port(of: bound) ?? 0
            let client = try TransportsClient.TCPTransport(
                host: "localhost", port: port, tls: tls.client, limits: limits)
            return Rig(
                client: client, bound: bound,
                rebind: {
                    try await bind(
                        TransportsService.TCPTransport(
                            host: "127.0.0.1", port: port, tls: tls.service, limits: limits), $0)
                }, scratch: scratch)
        case .webSocket, .webSocketTLS:
            let tls = kind == .webSocketTLS ? try TLSFiles(scratch) : nil
            let service = try TransportsService.WebSocketTransport(
                host: "127.0.0.1", port: 0, path: "/transport", tls: tls?.service, limits: limits)
            let bound = try await bind(service, processor)
            let port = await TransportsService.WebSocketTransport.port(of: bound) ?? 0
            let client = try TransportsClient.WebSocketTransport(
                host: "127.0.0.1", port: port, path: "/transport", tls: tls?.client, limits: limits)
            return Rig(
                client: client, bound: bound,
                rebind: {
                    try await bind(
                        TransportsService.WebSocketTransport(
                            host: "127.0.0.1", port: port, path: "/transport", tls: tls?.service, limits: limits), $0)
                }, scratch: scratch)
        }
    }

    private static func rust(
        _ kind: Kind, _ path: String, _ processor: TransportProcessor, _ limits: TransportLimits,
        _ scratch: ScratchDirectory
    ) async throws -> Rig {
        let text = "\(path)\n\(limits.message)"
        let configuration = Data(text.utf8)
        func client() throws -> any TransportsClient.Transport {
            kind == .rustLinked
                ? try LinkedClientTransport(configuration: text, limits: limits)
                : try TransportsClient.LoadedTransport(
                    library: RustLibrary.load(), configuration: configuration, limits: limits)
        }
        func service() throws -> any TransportsService.Transport {
            kind == .rustLinked
                ? try LinkedServiceTransport(configuration: text, limits: limits)
                : try TransportsService.LoadedTransport(
                    library: RustLibrary.load(), configuration: configuration, limits: limits)
        }
        return try await Rig(
            kind == .rustService ? TransportsClient.UnixTransport(path: path, limits: limits) : client(),
            kind == .rustClient ? TransportsService.UnixTransport(path: path, limits: limits) : service(),
            processor, scratch)
    }

    private init(
        client: any TransportsClient.Transport, bound: any BoundTransport,
        rebind: @escaping @Sendable (TransportProcessor) async throws -> any BoundTransport, scratch: ScratchDirectory
    ) {
        (self.client, self.bound, self.rebind, self.scratch) = (client, bound, rebind, scratch)
    }

    private init(
        _ client: any TransportsClient.Transport, _ service: any TransportsService.Transport,
        _ processor: TransportProcessor, _ scratch: ScratchDirectory
    ) async throws {
        self.init(
            client: client, bound: try await Self.bind(service, processor),
            rebind: { try await Self.bind(service, $0) }, scratch: scratch)
    }

    private static func bind(
        _ service: any TransportsService.Transport, _ processor: TransportProcessor
    ) async throws -> any BoundTransport {
        let bound = service.bind(processor: processor)
        try await bound.ready().get()
        return bound
    }
}

/// Certificates for one test.
struct TLSFiles: Sendable {
    let client: TLSConfiguration
    let service: TLSConfiguration

    init(_ scratch: ScratchDirectory) throws {
        let certificate = try Certificate(in: scratch)
        var client = TLSConfiguration.makeClientConfiguration()
        client.trustRoots = .file(certificate.certificatePath)
        self.client = client
        service = TLSConfiguration.makeServerConfiguration(
            certificateChain: try NIOSSLCertificate.fromPEMFile(certificate.certificatePath).map { .certificate($0) },
            privateKey: .privateKey(try NIOSSLPrivateKey(file: certificate.keyPath, format: .pem)))
    }
}

extension TransportLimits {
    /// Those that ship, and time for a handshake on a machine that runs every test at once.
    static var patient: TransportLimits {
        var limits = TransportLimits()
        (limits.handshake, limits.status) = (.seconds(300), .seconds(300))
        return limits
    }
}
