// A chat client for the terminal, built on PawlMessenger: an example for apps, and the people of `deploy/quickstart --chat
// app`. With --old it is the same client before its upgrade: it knows of no encryption, and uses RESTChat alone.

import ArgumentParser
import Foundation
import PawlMessenger
import Synchronization

@main struct ChatClient: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "ChatClient", abstract: "A chat client for the terminal, with end-to-end encryption.",
        discussion: """
            Write NAME TEXT to send TEXT to NAME. Also: /number NAME shows the safety number with NAME, /verify NAME marks \
            it as compared, and /accept NAME accepts other keys. Ctrl-D ends.
            """)

    @Argument(help: "The root of the chat's REST API, such as http://127.0.0.1:8080.") var url: String
    @Argument(help: "Your name at the chat.") var name: String
    @Option(help: "A file with your password, which also protects the history.") var passwordFile: String
    @Option(help: "The directory of the history.") var data: String
    @Flag(help: "Be the client before the upgrade, without encryption.") var old = false

    func run() async throws {
        guard let root = URL(string: url) else { throw ValidationError("\(url) is no URL.") }
        let password = try String(contentsOfFile: passwordFile, encoding: .utf8).trimmingCharacters(in: .newlines)
        let chat = RESTChat(url: root, username: Username(name), password: password)
        try await chat.register()
        if old { try await OldClient(chat: chat).run() } else { try await upgraded(chat, password) }
    }

    private func upgraded(_ chat: RESTChat, _ password: String) async throws {
        try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: true)
        let position = URL(filePath: data).appending(path: "position")
        let messenger = try await CypherMessenger.registerMessenger(
            username: chat.username, authenticationMethod: .password(password), appPassword: password,
            usingTransport: { chat.transport(for: $0, positionFile: position) },
            database: .directory(data), eventHandler: Screen())
        say("*** you are \(messenger.username), device \(messenger.deviceId)")
        for await (first, rest) in commands() {
            do {
                switch first {
                case "/number":
                    let number = messenger.createPrivateChat(with: Username(rest)).safetyNumber()
                    say("*** safety number with \(rest): \(number ?? "no keys yet")")
                case "/verify": try await messenger.createPrivateChat(with: Username(rest)).verify()
                case "/accept": try await messenger.createPrivateChat(with: Username(rest)).acceptKeys()
                default: try await messenger.createPrivateChat(with: Username(first)).sendText(rest)
                }
            } catch {
                say("*** not done: \(error)")
            }
        }
        messenger.close()
    }
}

/// Shows what happens.
private final class Screen: CypherMessengerEventHandler {
    private let waiting = Mutex<Set<String>>([])

    func onCreateChatMessage(_ message: AnyChatMessage) async {
        let protection = message.isVerified ? "verified" : message.isEncrypted ? "encrypted" : "not encrypted"
        let waits = message.state == .waiting
        if waits { waiting.withLock { _ = $0.insert(message.id) } }
        let mark = waits ? "waits for keys" : protection
        say("[\(mark)] \(message.isOwn ? "to \(message.chat)" : "\(message.chat)"): \(message.text)")
    }

    /// Shows a message again that waited for keys.
    func onMessageChange(_ message: AnyChatMessage) async {
        guard message.state != .waiting, waiting.withLock({ $0.remove(message.id) }) != nil else { return }
        await onCreateChatMessage(message)
    }

    func onKeysExchanged(with username: Username) async { say("*** keys were exchanged with \(username)") }

    func onContactIdentityChange(of username: Username) async {
        say("*** \(username) shows other keys. Ask them, and then write /accept \(username)")
    }

    func onWithheldMessage(from username: Username) async {
        say("*** an unprotected text under the name of \(username) was withheld")
    }

    func onUnreadableMessage(from username: Username, reason: String) async {
        say("*** a message of \(username) could not be opened: \(reason)")
    }
}

/// The client before its upgrade.
private struct OldClient {
    let chat: RESTChat

    func run() async throws {
        say("*** you are \(chat.username)")
        let reader = Task {
            var position = 0
            while !Task.isCancelled {
                if let (next, texts) = try? await chat.updates(since: position) {
                    for text in texts { say("\(text.sender): \(text.text)") }
                    position = next
                }
                try await Task.sleep(for: .milliseconds(200))
            }
        }
        for await (person, text) in commands() {
            do {
                try await chat.send(text, encrypted: nil, to: Username(person))
                say("to \(person): \(text)")
            } catch {
                say("*** not sent: \(error)")
            }
        }
        reader.cancel()
    }
}

/// Lines of standard input: the first word, and the rest.
private func commands() -> AsyncStream<(String, String)> {
    AsyncStream { continuation in
        // Reading blocks its thread.
        Thread {
            while let line = readLine() {
                let words = line.split(separator: " ", maxSplits: 1).map(String.init)
                if words.count == 2 { continuation.yield((words[0], words[1])) }
            }
            continuation.finish()
        }.start()
    }
}

private func say(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }
