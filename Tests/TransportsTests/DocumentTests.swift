// Every example of document 004 ("Transports"), as an application writes it. Each block stands between the document's own
// headings. The substitutions:
//
// | document | here | why |
// |---|---|---|
// | `import TesseractTransportsClient`, `...Service` | `import TransportsClient`, `TransportsService` | names of the products |
// | `BlockchainProtocol` | `ProtocolID` | a protocol is any name; nothing here knows blockchains |
// | `protocol Transport: AnyObject, ...` | also `Sendable` | objects are used on every thread |
// | `/* constructor parameters */` | `Data`, borrowed by `lend` in these tests | the examples leave them open |
// | a class that overrides `CoreTransport` | `@unchecked Sendable` beside it | Swift 6 asks for it in subclasses |
// | `TesseractError` | the same name; `logger`, `base` and `swift` are not there | no runtime of Rust to wrap |
// | `cargo`, `#![feature(...)]` | `rustc` 1.63, `Tests/Rust` | the document names no version; the original needs nightly |
// | `IPCTransportIOS` | not there | it belongs to iOS; a Unix socket is the counterpart here |
//
// A file may import both products only if it names the module, because both have a `Transport`; so the two halves of the
// document are two namespaces here.

import CMyTransport
import Foundation
import Testing
import TransportsClient
import TransportsCore
import TransportsService

/// "Client Transport": a transport in Swift.
private enum ClientDocument {
    typealias Transport = TransportsClient.Transport

    final class IPCTransport: Transport {
        // Transport ID. Unique string like 'ipc' for IPC transport
        var id: String { "ipc" }

        // Check if protocol supported through transport.
        func status(proto: ProtocolID) async -> Status {
            proto == "echo/1" ? .ready : .unavailable("Wallet is not installed")
        }

        // Create new connection to the Wallet for provided protocol
        func connect(proto: ProtocolID) -> any Connection { IPCConnection() }
    }

    // Wallet connection
    final class IPCConnection: Connection {
        private let queue = Once<Data>()

        // Send data to the wallet
        func send(request: Data) async -> Result<(), TesseractError> {
            queue.fulfil(request)
            return .success(())
        }

        // Receive response
        func receive() async -> Result<Data, TesseractError> { .success(await queue.value()) }
    }

    // "Rust Transports API", client: override CoreTransport.
    final class MyTransport: TransportsClient.CoreTransport, @unchecked Sendable {
        /// - Parameter path: of the socket.
        init(path: String) throws {
            try super.init(TesseractError.self) { value, error in
                path.lend { tesseract_client_my_transport_new($0, value, error) }
            }
        }
    }
}

/// "Service Transport": a transport in Swift.
private enum ServiceDocument {
    typealias Transport = TransportsService.Transport

    final class IPCTransport: Transport {
        let processor = Once<TransportProcessor>()

        // Called when Tesseract starts transport.
        // This is a place to start listening for requests
        // Returns object, that will be dropped on Tesseract deallocation.
        func bind(processor: TransportProcessor) -> any BoundTransport {
            self.processor.fulfil(processor)
            return IPCBoundTransport(stopped)
        }

        let stopped = Once<Void>()
    }

    // Helper object which will be dropped on Tesseract deallocation.
    // Stop listening in this object deinit
    final class IPCBoundTransport: BoundTransport {
        private let stopped: Once<Void>

        init(_ stopped: Once<Void>) { self.stopped = stopped }

        deinit { stopped.fulfil(()) }
    }

    // "Rust Transports API", service: override CoreTransport.
    final class MyTransport: TransportsService.CoreTransport, @unchecked Sendable {
        /// - Parameter path: of the socket.
        init(path: String) throws {
            try super.init(TesseractError.self) { value, error in
                path.lend { tesseract_service_my_transport_new($0, value, error) }
            }
        }
    }
}

@Suite struct DocumentTests {
    /// The client's workflow, steps 1 to 4.
    @Test func theWorkflowOfAClient() async throws {
        let transport = ClientDocument.IPCTransport()
        // 1. Tesseract checks if transport is working and supports needed protocol.
        #expect(await transport.status(proto: "echo/1").isReady)
        #expect(await transport.status(proto: "other/1") == .unavailable("Wallet is not installed"))
        // 3. Calls connect method in selected transport to obtain new Connection.
        let connection = transport.connect(proto: "echo/1")
        // 4. Calls send method in Connection with request data and then receive to get response.
        try await connection.send(request: Data("request".utf8)).get()
        #expect(await connection.receive() == .success(Data("request".utf8)))
    }

    /// The service's workflow, steps 1 to 3.
    @Test func theWorkflowOfAService() async throws {
        let transport = ServiceDocument.IPCTransport()
        var tesseract: TransportsService.Tesseract? = TransportsService.Tesseract().transport(transport)
            .service(EchoService())
        #expect(tesseract != nil)
        // 2. When data arrives, it should pass it to the process method of the TransportProcessor instance.
        let processor = await transport.processor.value()
        let request = try Serializer.json.data(
            RequestEnvelope(head: RequestHead(proto: "echo/1", method: "echo", id: 1), request: "text")
        ).get()
        let reply = try await processor.process(data: request).get()
        let envelope = try Serializer.value(ReplyEnvelope<String>.self, in: reply).get()
        #expect(envelope.result == .success("text"))
        // 3. When BoundTransport is deallocated, transport stops listening.
        #expect(transport.stopped.current == nil)
        tesseract = nil
        #expect(transport.stopped.current != nil)
    }

    /// "Transport can be created and added to the Tesseract instance": both constructors of the document, linked.
    @Test(.enabled(if: RustLibrary.isLinked))
    func transportsInRustAreAddedLikeOthers() async throws {
        let scratch = FileManager.default.temporaryDirectory.appending(path: "pawl-\(UUID().uuidString.prefix(8)).sock")
        let service = TransportsService.Tesseract()
            .transport(try ServiceDocument.MyTransport(path: scratch.path))
            .service(EchoService())
        try await service.ready().get()
        let echo = TransportsClient.Tesseract(delegate: SingleTransportDelegate())
            .transport(try ClientDocument.MyTransport(path: scratch.path))
            .service(EchoClient.self)
        #expect(await echo.echo("text") == .success("text"))
        await service.close()
    }

    /// A transport of the document becomes one of the C interface by itself.
    @Test func everyTransportHasACore() async throws {
        let transport = try TransportsClient.CoreTransport(ClientDocument.IPCTransport().toCore())
        #expect(transport.id == "ipc")
        #expect(await transport.status(proto: "other/1") == .unavailable("Wallet is not installed"))
        let reply = await transport.connect(proto: "echo/1").exchange(request: Data("request".utf8))
        #expect(reply == .success(Data("request".utf8)))
    }
}
