// `pawl config check --mapping`: applies a mapping to samples of requests, answers and frames.

import ArgumentParser
import Foundation
import JSONGateway
import MappingFile
import NIOCore
import PawlConfiguration

/// The options of `pawl config check` for a mapping.
struct MappingSamples: ParsableArguments {
    /// The sender of a frame.
    enum Side: String, ExpressibleByArgument, CaseIterable {
        case client, backend
    }

    @Option(help: "Check this mapping.") var mapping: String?
    @Option(
        help: "A sample request: a file with its line, header, an empty line and its body; - is standard input.")
    var request: String?
    @Option(help: "The answer to that request, or the answer's body alone.") var response: String?
    @Option(help: "A sample WebSocket message.") var frame: String?
    @Option(name: .customLong("from"), help: "The sender of the frame: client or backend.") var side: Side?
    @Flag(help: "Print JSON for scripts.") var json = false

    func check() throws {
        guard mapping != nil || request == nil && response == nil && frame == nil && side == nil else {
            throw ValidationError("Samples need a mapping: --mapping FILE.")
        }
        guard response == nil || request != nil else {
            throw ValidationError("Name the request that this answers: --request FILE.")
        }
        guard (frame == nil) == (side == nil) else {
            throw ValidationError("Use --frame FILE together with --from client or --from backend.")
        }
        guard [request, response, frame].count(where: { $0 == "-" }) <= 1 else {
            throw ValidationError("Only one sample can be read from standard input.")
        }
    }

    /// Applies the mapping to the samples; nil if there is none.
    func trials() throws -> (text: String, trials: [MappingTrial])? {
        guard let file = mapping else { return nil }
        let mapping = try MappingFile.read(path: file)
        var trials: [MappingTrial] = []
        do {
            if let request {
                let (head, body) = try HTTPSample.request(try Self.bytes(request))
                trials.append(.request(mapping, head, body))
                if let response {
                    let (answer, body) = try HTTPSample.response(try Self.bytes(response))
                    trials.append(.response(mapping, head, answer, body))
                }
            }
            if let frame, let side {
                let body = ByteBuffer(bytes: try Self.bytes(frame))
                trials.append(.frame(mapping, side == .client ? .fromClient : .fromBackend, body))
            }
        } catch let fault as HTTPSample.Fault {
            throw AdminFailure(.sampleUnreadable, "the sample cannot be read: \(fault.words)")
        }
        let text = ([mapping.summary] + trials.map(\.description)).joined(separator: "\n\n")
        return (Printable.text(text), trials)
    }

    /// Reads a file until it exceeds the limit for samples, so that a longer file is detected.
    private static func bytes(_ file: String) throws -> [UInt8] {
        guard let handle = file == "-" ? .standardInput : FileHandle(forReadingAtPath: file) else {
            let reason = String(cString: strerror(errno)).lowercased()
            throw AdminFailure(.sampleUnreadable, "the sample \(file) cannot be read: \(reason)")
        }
        var data = Data()
        while data.count <= HTTPSample.sizeLimit, let more = try handle.read(upToCount: 1 << 20), !more.isEmpty {
            data += more
        }
        return Array(data)
    }
}
