"""The server's errors: ids and statuses are its own, the sentences for people are this stand-in's."""

SENTENCES = {
    "api.channel.add_user_to_channel.type.app_error": "Nobody can be added to a channel of this type.",
    "api.channel.create_group.bad_size.app_error": "A group channel has three to eight members.",
    "api.channel.create_group.bad_user.app_error": "One of the users does not exist.",
    "api.channel.create_direct_channel.invalid_user.app_error": "One of the users does not exist.",
    "api.channel.delete_channel.cannot.app_error": "The default channel cannot be archived.",
    "api.channel.delete_channel.deleted.app_error": "The channel is archived.",
    "api.channel.delete_channel.type.invalid": "Direct and group channels cannot be archived.",
    "api.channel.patch_update_channel.forbidden.app_error": "The channel could not be changed.",
    "api.channel.patch_update_channel.no_changes.app_error": "The request changes nothing.",
    "api.channel.patch_update_channel.update_direct_or_group_messages_not_allowed.app_error":
        "Name, display name and purpose of a direct or group channel cannot be changed.",
    "api.channel.update_channel.update_direct_or_group_messages_not_allowed.app_error":
        "Name, display name and purpose of a direct or group channel cannot be changed.",
    "api.channel.update_channel.deleted.app_error": "The channel is archived.",
    "api.channel.update_channel.typechange.app_error": "The type of a channel cannot be changed like this.",
    "api.channel.update_channel.tried.app_error": "The default channel keeps its name.",
    "api.channel.update_channel_privacy.default_channel_error": "The default channel stays open.",
    "api.channel.remove.default.app_error": "Nobody can leave the default channel.",
    "api.channel.remove_channel_member.type.app_error": "Nobody can be removed from a channel of this type.",
    "api.command.execute_command.deleted.error": "The channel is archived.",
    "api.command.execute_command.not_found.app_error": "There is no command /{Trigger}.",
    "api.command.execute_command.start.app_error": "A command begins with a slash and names a channel.",
    "api.context.404.app_error": "There is no such page.",
    "api.context.invalid_body_param.app_error": "{Name} in the body of the request is missing or invalid.",
    "api.context.invalid_param.app_error": "The parameter {Name} is invalid.",
    "api.context.invalid_url_param.app_error": "{Name} in the URL of the request is missing or invalid.",
    "api.context.permissions.app_error": "You do not have the permissions for this.",
    "api.context.request_body_too_large.app_error": "The body of the request is too large.",
    "api.context.session_expired.app_error": "The session is invalid or has expired; log in again.",
    "api.context.token_provided.app_error": "A session token is not accepted in the URL.",
    "api.emoji.create.duplicate.app_error": "There is a custom emoji of this name.",
    "api.emoji.create.parse.app_error": "The request to make an emoji could not be read.",
    "api.file.get_file_info.app_error": "There is no such file.",
    "api.file.get_file_preview.no_preview.app_error": "The file has no preview.",
    "api.file.get_file_thumbnail.no_thumbnail.app_error": "The file has no thumbnail.",
    "api.file.get_public_link.disabled.app_error": "Public links are switched off.",
    "api.file.get_public_link.no_post.app_error": "The file is in no post.",
    "api.file.get_file.public_invalid.app_error": "The public link is invalid.",
    "api.file.upload_file.read_request.app_error": "The upload could not be read.",
    "api.file.upload_file.too_large_detailed.app_error": "The file is too large.",
    "api.post.create_post.can_not_post_to_deleted.error": "The channel is archived.",
    "api.post.create_post.channel_root_id.app_error": "The root post is in another channel.",
    "api.post.create_post.root_id.app_error": "The root post is invalid.",
    "api.post.delete_post.can_not_delete_post_in_deleted.error": "The channel is archived.",
    "api.post.patch_post.can_not_update_post_in_deleted.error": "The channel is archived.",
    "api.post.posts_by_ids.invalid_body.request_error": "At most 1000 posts can be asked for.",
    "api.post.search_posts.invalid_body.app_error": "The search could not be read.",
    "api.post.update_post.can_not_update_post_in_deleted.error": "The channel is archived.",
    "api.post.update_post.system_message.app_error": "System messages cannot be edited.",
    "api.preference.delete_preferences.delete.app_error": "The preferences are another user's.",
    "api.preference.update_preferences.set.app_error": "The preferences are another user's.",
    "api.reaction.save.archived_channel.app_error": "The channel is archived.",
    "api.reaction.delete.archived_channel.app_error": "The channel is archived.",
    "api.reaction.save_reaction.invalid.app_error": "The reaction is invalid.",
    "api.reaction.save_reaction.user_id.app_error": "The reaction is another user's.",
    "api.user.create_user.no_open_server": "Nobody can sign up by themselves.",
    "api.user.login.blank_pwd.app_error": "The password is empty.",
    "api.user.login.inactive.app_error": "The account is inactive.",
    "api.user.login.invalid_credentials_email_username": "The login or the password is wrong.",
    "api.web_socket_router.bad_action.app_error": "There is no such action.",
    "api.web_socket_router.bad_seq.app_error": "The sequence number is invalid.",
    "api.web_socket_router.no_action.app_error": "The request has no action.",
    "api.web_socket_router.not_authenticated.app_error": "The connection is not authenticated.",
    "api.websocket_handler.invalid_param.app_error": "The parameter {Name} is invalid.",
    "app.channel.add_member.deleted_user.app_error": "The user is inactive.",
    "app.channel.get.existing.app_error": "There is no channel {channel_id}.",
    "app.channel.get_by_name.missing.app_error": "There is no channel of this name.",
    "app.channel.get_member.missing.app_error": "The user is not in the channel.",
    "app.channel.get_unread.app_error": "The unread messages could not be counted.",
    "app.emoji.get.no_result": "There is no such emoji.",
    "app.emoji.get_by_name.no_result": "There is no such emoji.",
    "app.file_info.get.app_error": "There is no such file.",
    "app.post.get.app_error": "The post could not be read.",
    "app.preference.get.app_error": "There is no such preference.",
    "app.reaction.save.save.too_many_reactions": "The post has too many different reactions.",
    "app.update_scheduled_post.existing_scheduled_post.not_exist": "There is no such scheduled post.",
    "app.update_scheduled_post.update_permission.error": "The scheduled post is another user's.",
    "app.delete_scheduled_post.existing_scheduled_post.not_exist": "There is no such scheduled post.",
    "app.delete_scheduled_post.delete_permission.error": "The scheduled post is another user's.",
    "api.preference.preferences_category.get.app_error": "There is no such preference.",
    "app.channel.sidebar_categories.app_error": "There is no such category.",
    "app.team.get.find.app_error": "There is no such team.",
    "app.team.get_by_name.missing.app_error": "There is no team of this name.",
    "app.team.get_member.missing.app_error": "The user is not in the team.",
    "app.user.get_by_username.app_error": "There is no user of this name.",
    "app.user.save.email_exists.app_error": "There is an account with this address.",
    "app.user.save.username_exists.app_error": "There is an account of this name.",
    "model.channel.is_valid.display_name.app_error": "The display name is too long.",
    "model.channel.is_valid.header.app_error": "The header is too long.",
    "model.channel.is_valid.name.app_error": "The name is invalid.",
    "model.channel.is_valid.purpose.app_error": "The purpose is too long.",
    "model.channel.is_valid.type.app_error": "The type is invalid.",
    "model.draft.is_valid.message_length.app_error": "The draft is longer than the server allows.",
    "model.emoji.name.app_error": "The name of the emoji is invalid.",
    "model.post.is_valid.file_ids.app_error": "The post has too many files.",
    "model.post.is_valid.message_length.app_error": "The message is longer than the server allows.",
    "model.post.is_valid.props.app_error": "The props are too long.",
    "model.post.is_valid.type.app_error": "The type of the post is invalid.",
    "model.preference.is_valid.value.app_error": "The value is too long.",
    "model.scheduled_post.is_valid.scheduled_at.app_error": "The time of the post is in the past.",
    "model.team.is_valid.url.app_error": "The name of the team is invalid.",
    "model.user.is_valid.username.app_error": "The name of the user is invalid.",
    "model.user.is_valid.pwd_min_length.app_error": "The password is too short.",
    "model.utils.decode_json.app_error": "The body of the request is no JSON.",
    "store.sql_channel.save_channel.exists.app_error": "There is a channel of this name in the team.",
    "app.team.save.existing.app_error": "There is a team of this name.",
    "app.user.missing_account.const": "There is no such user.",
}

class APIError(Exception):
    """An answer that is no success. `parameters` fill the sentence."""

    def __init__(self, status, id, **parameters):
        super().__init__(id)
        self.status = status
        self.id = id
        self.message = SENTENCES[id].format(**parameters)

    def body(self, request_id):
        """`detailed_error` is empty: the server wipes it unless it runs for developers."""
        return {
            "id": self.id, "message": self.message, "detailed_error": "", "request_id": request_id,
            "status_code": self.status,
        }


def invalid_body(name):
    return APIError(400, "api.context.invalid_body_param.app_error", Name=name)


def invalid_url(name):
    return APIError(400, "api.context.invalid_url_param.app_error", Name=name)


def forbidden():
    return APIError(403, "api.context.permissions.app_error")


def unreadable():
    return APIError(400, "model.utils.decode_json.app_error")


def expired():
    return APIError(401, "api.context.session_expired.app_error")
