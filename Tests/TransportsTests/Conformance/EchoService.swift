import Foundation
import TransportsClient
import TransportsCore
import TransportsService

/// A service that repeats texts.
struct EchoService: TransportsService.Service {
    let proto: ProtocolID = "echo/1"

    func call(
        _ method: String, _ request: ServiceRequest
    ) async throws(TesseractError) -> any Encodable & Sendable {
        switch method {
        case "echo": return try request.decode(String.self)
        case "sum": return try request.decode([Int64].self).reduce(0, &+)
        case "refuse": throw .custom(code: 12, reason: "refused: ~~~ \0 ::")
        default: throw .unavailable(reason: "there is no method '\(method)'")
        }
    }

    /// The processor that a Tesseract with this service gives to its transports.
    static func processor() async throws -> TransportProcessor {
        let catcher = ProcessorCatcher()
        let tesseract = TransportsService.Tesseract().service(EchoService()).transport(catcher)
        // The processor keeps the services and not the Tesseract.
        _ = tesseract
        guard let processor = catcher.caught.current else { throw TesseractError.weird(reason: "not bound") }
        return processor
    }
}

/// A transport that keeps the processor.
final class ProcessorCatcher: TransportsService.Transport {
    let caught = Once<TransportProcessor>()

    private final class Bound: BoundTransport {}

    func bind(processor: TransportProcessor) -> any BoundTransport {
        caught.fulfil(processor)
        return Bound()
    }
}

/// The echo service as its clients see it.
struct EchoClient: TransportsClient.Service {
    static let proto: ProtocolID = "echo/1"
    private let channel: ServiceChannel

    init(channel: ServiceChannel) { self.channel = channel }

    func echo(_ text: String) async -> Result<String, TesseractError> { await channel.call("echo", text) }

    func sum(_ numbers: [Int64]) async -> Result<Int64, TesseractError> { await channel.call("sum", numbers) }

    func refuse() async -> Result<String, TesseractError> { await channel.call("refuse", "") }

    func unknown() async -> Result<String, TesseractError> { await channel.call("unknown", "") }
}

extension TransportsClient.Tesseract {
    func transport(any transport: any TransportsClient.Transport) -> TransportsClient.Tesseract {
        func open(_ transport: some TransportsClient.Transport) -> TransportsClient.Tesseract {
            self.transport(transport)
        }
        return open(transport)
    }
}
