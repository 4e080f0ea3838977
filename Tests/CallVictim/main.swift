// A messenger whose calls are driven over standard input and output, one JSON object a line. It joins RTC code in another
// language to the messenger.
//
//     CallVictim PLACE NAME [server]
//
// PLACE is a directory (`SpoolTransport`), the address of a chat with the generic REST API (`RESTChat`), or that of an IRC
// server without TLS (`irc://127.0.0.1:PORT`).
//
// In: {"do": "offer" | "answer" | "candidate" | "ciphertext" | "invite" | "roster" | "end" | "text" | "number" | "pin", ...}
// Out: {"event": "ready" | "sent" | "failed" | "number" | "offer" | "answer" | "candidate" | "unreadable" | ... , ...}

import Foundation
import MessengerSpool
import PawlMessenger
import PawlMessengerIRC
import Synchronization

struct Line: Codable {
    var `do`: String?
    var event: String?
    var call: Call?
    var sdp: SessionDescription?
    var metadata: SDPNegotiationMetadata?
    var candidate: IceCandidate?
    var participants: [Call.Participant]?
    /// Another account: a recipient, or the sender of what has come.
    var to: String?
    var connectionId: String?
    var text: String?
    var state: CallEndState?
}

@Sendable func say(_ line: Line) {
    guard let data = try? JSONEncoder().encode(line) else { return }
    FileHandle.standardOutput.write(data + Data("\n".utf8))
}

/// Writes all events.
final class LineSession: RTCSession, RTCGroupCall {
    func handleOffer(call: Call, sdp: SessionDescription, metadata: SDPNegotiationMetadata) async throws {
        say(Line(event: "offer", call: call, sdp: sdp, metadata: metadata))
    }
    func handleAnswer(call: Call, sdp: SessionDescription) async throws {
        say(Line(event: "answer", call: call, sdp: sdp))
    }
    func handleCandidate(call: Call, candidate: IceCandidate) async throws {
        say(Line(event: "candidate", call: call, candidate: candidate))
    }
    func handleCiphertext(
        from participant: Call.Participant, connectionId: String, ciphertext: Data, call: Call
    ) async throws {
        let text = String(decoding: ciphertext, as: UTF8.self)
        say(Line(event: "ciphertext", call: call, to: participant.secretName, connectionId: connectionId, text: text))
    }
    func handleEnd(call: Call, endState: CallEndState) async { say(Line(event: "end", call: call, state: endState)) }
    func groupCall(for call: Call) async -> (any RTCGroupCall)? { self }

    func handleControlMessage(_ message: RTCGroupCallControlMessage) async throws {
        switch message {
        case .sfuAnswer(let sdp): say(Line(event: "answer", sdp: sdp))
        case .sfuCandidate(let candidate): say(Line(event: "candidate", candidate: candidate))
        case .groupControl(.invitation): say(Line(event: "invitation"))
        case .groupControl(.participants(let list, _)): say(Line(event: "roster", participants: list))
        case .groupControl(.participantDemuxId): break
        case .participantLeft(let name): say(Line(event: "left", to: name))
        }
    }
    func handleCiphertextFromParticipant(
        fromParticipantId: String, connectionId: String, ciphertext: Data
    ) async throws {
        let text = String(decoding: ciphertext, as: UTF8.self)
        say(Line(event: "ciphertext", to: fromParticipantId, connectionId: connectionId, text: text))
    }
}

/// Tells what was sent under a person's name and is not theirs.
struct Handler: CypherMessengerEventHandler {
    func onUnreadableMessage(from username: Username, reason: String) async {
        say(Line(event: "unreadable", to: username.raw, text: reason))
    }
}

let arguments = CommandLine.arguments
guard arguments.count >= 3 else { exit(2) }
let (place, name) = (arguments[1], Username(arguments[2]))
let made = Mutex<SpoolTransport?>(nil)
let chat = URL(string: place).flatMap { url in
    url.scheme == "http" ? RESTChat(url: url, username: name, password: "victim") : nil
}
try await chat?.register()
let position = FileManager.default.temporaryDirectory.appending(path: "CallVictim-\(UUID().uuidString)")
let messenger = try await CypherMessenger.registerMessenger(
    username: name, authenticationMethod: .identity, appPassword: "victim",
    usingTransport: { request in
        if let chat { return chat.transport(for: request, positionFile: position) }
        if let url = URL(string: place), url.scheme == "irc" {
            var settings = IRCChat.Settings(host: url.host ?? "", port: url.port ?? 0)
            (settings.security, settings.linesPerSecond) = (.none, 0)
            return try IRCChat(for: request, settings: settings)
        }
        let transport = SpoolTransport(place, request)
        made.withLock { $0 = transport }
        return transport
    }, database: .inMemory(), eventHandler: Handler())
let session = LineSession()
var options = CallOptions()
options.isServer = arguments.last == "server"
messenger.setCallSession(session, options: options)
let delivery = Task {
    while !Task.isCancelled {
        if await made.withLock({ $0 })?.deliver() ?? 0 == 0 { try? await Task.sleep(for: .milliseconds(5)) }
    }
}

/// Does what a line asks for.
@MainActor func perform(_ line: Line) async throws {
    let to = line.to ?? ""
    if line.do == "text" {
        _ = try await messenger.createPrivateChat(with: Username(to)).sendText(line.text ?? "")
        return
    }
    if line.do == "number" {
        let number = messenger.createPrivateChat(with: Username(to)).safetyNumber()
        return say(Line(event: "number", to: to, text: number))
    }
    if line.do == "pin" {
        options.sfu = .device(account: Username(to), safetyNumber: line.text ?? "")
        return messenger.setCallSession(session, options: options)
    }
    guard var call = line.call else { throw CallError.malformed }
    call.sessionDescription = line.sdp
    switch line.do {
    case "offer": try await messenger.sendOffer(call: call)
    case "answer":
        guard let metadata = line.metadata else { throw CallError.malformed }
        try await messenger.sendAnswer(call: call, metadata: metadata)
    case "candidate":
        guard let candidate = line.candidate else { throw CallError.malformed }
        try await messenger.sendCandidate(candidate, call: call)
    case "ciphertext":
        try await messenger.sendCiphertext(
            recipient: to, connectionId: line.connectionId ?? "", ciphertext: Data((line.text ?? "").utf8), call: call)
    case "invite": try await messenger.sendGroupControl(.invitation, to: to, call: call)
    case "roster":
        try await messenger.sendGroupControl(.participants(line.participants ?? [], version: 1), to: to, call: call)
    case "end": try await messenger.didEnd(call: call, endState: line.state ?? .failed)
    default: throw CallError.malformed
    }
}

let (lines, input) = AsyncStream.makeStream(of: String.self)
Thread {
    while let line = readLine() { input.yield(line) }
    input.finish()
}.start()
say(Line(event: "ready"))
for await text in lines {
    do {
        let line = try JSONDecoder().decode(Line.self, from: Data(text.utf8))
        try await perform(line)
        say(Line(event: "sent", text: line.do))
    } catch {
        say(Line(event: "failed", text: "\(error)"))
    }
}
delivery.cancel()
messenger.close()
try? FileManager.default.removeItem(at: position)
